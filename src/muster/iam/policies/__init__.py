"""The language of policies, and decisions by them: who may do what, where and when."""
