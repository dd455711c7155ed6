"""Users and what they may do: roles, tokens, logins of OpenID Connect. Decisions are pure."""
