"""What bench/report.py is made of."""
