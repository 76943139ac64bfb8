"""Running single operators, as the acl interface of CANN does."""
