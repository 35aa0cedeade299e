"""What all packages share: safe files, validated options, what an accuracy is, and the wording of messages.

The package imports none of the others, and nothing but pydantic.
"""
