"""Matrix capsules: the poses that a layer passes on."""

from __future__ import annotations

import torch

from caps_med.layers.matrix import ConvMatrixCapsules, PoseMatrices
from caps_med.routing import EMRouting


def test_the_pose_of_an_only_child_is_its_matrix_product() -> None:
    """Hinton et al. 2018, section 3: a vote is pose times transformation, both 4 x 4."""
    torch.manual_seed(0)
    layer = ConvMatrixCapsules(2, 1, 2, kernel_size=1, routing=EMRouting(1))
    poses = torch.randn(3, 1, 16, 5, 4)
    found, _ = layer(PoseMatrices(poses, torch.ones(3, 1, 5, 4)))
    matrices = poses[:, 0].movedim(1, -1).unflatten(-1, (4, 4))  # [B, H, W, 4, 4]
    for parent in range(2):
        product = (matrices @ layer.weight[0, 0, parent]).flatten(-2).movedim(-1, 1)
        torch.testing.assert_close(found[:, parent], product)
