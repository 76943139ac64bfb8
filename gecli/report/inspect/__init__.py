"""The views of `gecli inspect-om`."""
