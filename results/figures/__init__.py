"""The figures of the suite, one file each: data frames in, axes out."""
