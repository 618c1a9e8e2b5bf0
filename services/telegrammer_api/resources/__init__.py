"""What callers can do, one module for each noun. The gate was passed before."""
