"""Efficient attention of other papers, one mechanism a file."""
