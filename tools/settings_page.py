"""Write the table of settings in ``docs/configuration.md`` from the table in the code.

python tools/settings_page.py
"""

from __future__ import annotations

from pathlib import Path

from alight._src.config.schema import SETTINGS

PAGE = Path(__file__).parent.parent / "docs/configuration.md"


def main() -> None:
    """Write the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| key")) + 2
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    lines[start:end] = [f"| {' | '.join(row.cells)} |" for row in SETTINGS.values()]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
