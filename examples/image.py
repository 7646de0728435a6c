"""Develop a photograph: decode, sharpen, normalise the colours, stretch the contrast, encode.

The photograph is the portrait of Grace Hopper that comes with matplotlib, repeated to fill a 4K
frame (2160 x 3840), every other copy mirrored. All arithmetic is in float32.

Formulas:
- decoding and encoding: the transfer function of sRGB, IEC 61966-2-1;
- luminance: Y of ITU-R BT.709 (on linear light);
- blur: separable binomial 1-4-6-4-1 over 16, edges repeated;
- unsharp mask: image + amount * (image - blurred), Gonzalez and Woods, "Digital Image
  Processing", section "Unsharp masking and highboost filtering";
- normalisation: each channel to zero mean and unit standard deviation, then linear contrast
  stretch between two percentiles of the luminance.
"""

from __future__ import annotations

import argparse

import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image

LUMINANCE = (0.2126, 0.7152, 0.0722)


def load_frame(height: int) -> np.ndarray:
    """Return the photograph repeated to `height` rows in the format 16:9, as uint8."""
    photograph = np.asarray(Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)))
    pair = np.concatenate([photograph, photograph[:, ::-1]], axis=1)
    four = np.concatenate([pair, pair[::-1]], axis=0)
    width = height * 16 // 9
    rows, columns, _ = four.shape
    return np.tile(four, (-(-height // rows), -(-width // columns), 1))[:height, :width]


def decode(pixels: np.ndarray) -> np.ndarray:
    """Return linear light, 0 to 1, from sRGB bytes."""
    value = pixels.astype(np.float32) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def encode(light: np.ndarray) -> np.ndarray:
    """Return sRGB bytes from linear light; what is out of 0 to 1 is clipped."""
    light = np.clip(light, 0, 1)
    value = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return (value * 255 + 0.5).astype(np.uint8)


def luminance(image: np.ndarray) -> np.ndarray:
    """Return the weighted sum of the three channels."""
    red, green, blue = LUMINANCE
    return red * image[..., 0] + green * image[..., 1] + blue * image[..., 2]


def blur(image: np.ndarray) -> np.ndarray:
    """Return the image after a 5 x 5 binomial filter."""
    p = np.pad(image, ((2, 2), (0, 0), (0, 0)), mode="edge")
    image = (p[:-4] + p[4:] + 4 * (p[1:-3] + p[3:-1]) + 6 * p[2:-2]) / 16
    p = np.pad(image, ((0, 0), (2, 2), (0, 0)), mode="edge")
    return (p[:, :-4] + p[:, 4:] + 4 * (p[:, 1:-3] + p[:, 3:-1]) + 6 * p[:, 2:-2]) / 16


def sharpen(image: np.ndarray, amount: float) -> np.ndarray:
    """Return the image with its fine detail raised by `amount`."""
    return np.clip(image + amount * (image - blur(image)), 0, 1)


def channel_means(image: np.ndarray) -> np.ndarray:
    """Return the mean of each channel."""
    # In float32 NumPy adds millions of values of a channel one by one and loses four digits.
    return image.mean(axis=(0, 1), dtype=np.float64)


def normalise(image: np.ndarray) -> np.ndarray:
    """Return the image with zero mean and unit standard deviation in each channel."""
    centred = image - channel_means(image).astype(np.float32)
    deviation = np.sqrt(channel_means(centred * centred))
    return centred / deviation.astype(np.float32)


def stretch(image: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the image scaled so that two percentiles of its luminance become 0 and 1."""
    black, white = np.percentile(luminance(image), [low, high])
    return np.clip((image - float(black)) / float(white - black), 0, 1)


def block_means(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the means of `rows` x `columns` equal blocks; what is over at the ends is left out."""
    height, width = values.shape[0] // rows, values.shape[1] // columns
    whole = values[: rows * height, : columns * width].astype(np.float64)
    return whole.reshape(rows, height, columns, width).mean(axis=(1, 3))


def numbers(values: np.ndarray, digits: int) -> str:
    """Return the values in columns."""
    return "".join(f"{float(value):10.{digits}f}" for value in values)


def main() -> None:
    """Develop the photograph, print its measures, and write it when asked."""
    parser = argparse.ArgumentParser(description="Develop a photograph in float32.")
    parser.add_argument("--size", type=int, default=2160, help="rows of the frame (default: 2160)")
    parser.add_argument("--output", metavar="FILE", help="also write the picture into FILE")
    options = parser.parse_args()

    pixels = load_frame(options.size)
    light = decode(pixels)
    sharp = sharpen(light, amount=0.8)
    balanced = normalise(sharp)
    stretched = stretch(balanced, 1, 99)
    result = encode(stretched)
    brightness = luminance(stretched)
    mask = brightness > brightness.mean(dtype=np.float64)

    print("frame", "x".join(map(str, pixels.shape)), pixels.dtype, "worked in", light.dtype)
    print(f"{'':<24}{'red':>10}{'green':>10}{'blue':>10}")
    for name, image, digits in (
        ("bytes in", pixels, 3),
        ("linear light", light, 5),
        ("sharpened", sharp, 5),
        ("change by sharpening", np.abs(sharp - light), 5),
        ("stretched", stretched, 5),
        ("bytes out", result, 3),
    ):
        print(f"{name:<24}{numbers(channel_means(image), digits)}")
    deviation = result.std(axis=(0, 1), dtype=np.float64)
    print(f"{'bytes out, deviation':<24}{numbers(deviation, 3)}")

    levels, _ = np.histogram(result, bins=8, range=(0, 256))
    print("\nbytes out, % in eighths of the range")
    print(numbers(100 * levels / result.size, 2))
    print(f"\nbrighter than the mean: {100 * mask.mean():.1f} %; by blocks of the frame:")
    for row in block_means(mask, 4, 6):
        print(numbers(100 * row, 1))
    print("\nbytes out, green, by blocks of the frame:")
    for row in block_means(result[..., 1], 4, 6):
        print(numbers(row, 2))
    if options.output:
        Image.fromarray(np.asarray(result)).save(options.output)


if __name__ == "__main__":
    main()
