"""What every other part stands on: nothing of alight is imported here, and nothing here knows of
Arrays or devices."""
