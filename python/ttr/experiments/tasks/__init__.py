"""What layers are trained on: each task is a law of data, a network, a loss and a score.

`recall`: pairs of tokens, more than a memory has channels. `linear`: linear regression, whose
answer may change within the sequence. `curves`: regression of smooth functions. `text`: bytes.
`task`: what they have in common.
"""
