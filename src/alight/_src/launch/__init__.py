"""`alight run`: change here how a program is found, loaded and started; the NumPy that it sees is
`api.stand_ins`."""
