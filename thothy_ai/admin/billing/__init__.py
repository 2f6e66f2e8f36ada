"""What the operator pays for: usage by hour, tenant, kind and model; its price; drains; whether the sums hold."""
