"""Apply models to images: segment, synthesize, classify, explore capsules."""

from caps_med.inference.classifier import Classification, Classifier
from caps_med.inference.drawing import Drawing
from caps_med.inference.features import FeatureExplorer, Features
from caps_med.inference.inspection import Inspection
from caps_med.inference.manipulation import Manipulation, Manipulator
from caps_med.inference.measures import LabelMeasures
from caps_med.inference.model import Model, load_model
from caps_med.inference.point import Point
from caps_med.inference.progress import Progress
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.refinement import RefinementChoice
from caps_med.inference.segmenter import Segmentation, Segmenter
from caps_med.inference.synthesizer import Synthesizer, SyntheticImage
from caps_med.inference.uncertainty import ImageUncertainty
from caps_med.inference.uncertainty_maps import MAP_NAMES, Disagreement, MapName, ShownMap

__all__ = [
    "MAP_NAMES",
    "AnswerProvenance",
    "Classification",
    "Classifier",
    "Disagreement",
    "Drawing",
    "FeatureExplorer",
    "Features",
    "ImageUncertainty",
    "Inspection",
    "LabelMeasures",
    "Manipulation",
    "Manipulator",
    "MapName",
    "Model",
    "Point",
    "Progress",
    "RefinementChoice",
    "Segmentation",
    "Segmenter",
    "ShownMap",
    "Synthesizer",
    "SyntheticImage",
    "load_model",
]
