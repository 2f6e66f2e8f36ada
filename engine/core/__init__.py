"""The engine core: the loop, how sequences gain tokens, and what each sequence costs."""
