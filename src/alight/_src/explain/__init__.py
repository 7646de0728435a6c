"""The log, the plans and the profiles, for people: change here what reports, forecasts and tables
show, never where work runs."""
