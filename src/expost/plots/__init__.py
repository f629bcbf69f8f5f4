"""Pictures of public values; found through the entry points ``expost.pictures`` and drawn with matplotlib."""
