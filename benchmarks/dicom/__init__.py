"""How DICOM files that others wrote are read, against pydicom and SimpleITK."""
