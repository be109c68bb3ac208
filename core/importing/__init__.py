"""Files and command lines of other programs -> a profile and a report. Nothing that is read here is ever run."""
