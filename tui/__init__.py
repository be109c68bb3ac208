"""Everything that draws and the `trainwiz` command."""
