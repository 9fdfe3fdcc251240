"""Generation of whole sequences, token by token: recurrent attention against every way of doing without a state."""
