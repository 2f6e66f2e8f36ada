"""The processes that compute one model together: their group, and the steps that the first rank sends to the others."""
