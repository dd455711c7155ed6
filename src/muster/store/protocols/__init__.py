"""One protocol for each set of use cases of a store (`muster.store.base`)."""
