"""The experiments; each module has `cells(networks, seeds)`."""
