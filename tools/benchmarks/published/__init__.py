"""Published memory figures of real runs, as workloads of this product, beside what other estimators say."""
