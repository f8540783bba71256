"""What the room claims, measured on work of a CPU's size."""
