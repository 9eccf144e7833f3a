"""What a GPU would show, found out without one."""
