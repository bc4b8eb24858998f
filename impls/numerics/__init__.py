"""How right an implementation is: cases, error metrics, derived bounds, baselines, and the gate over them."""
