"""The hall: what all rooms share. It knows no room."""
