"""The service and training on several Ray nodes, simulated on one machine."""
