"""What all packages share: safe reading and writing of files, validated options, and the wording of messages.

The package imports none of the others, and nothing but pydantic.
"""
