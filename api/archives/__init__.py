"""Series come from DICOMweb archives that the settings name, and answers are stored there."""
