"""Small defects put into critical code by hand, and the tests that must find each of them."""
