package parley

// AuthSpec is the authentication that a caller gives: a kind, and references to
// its secrets or the secrets themselves.
type AuthSpec struct {
	// Type decides; with AuthNone the other members are empty.
	Type AuthType
	// Header names what carries the credential of AuthAPIKey ("" is X-API-Key)
	// and AuthHeader, as in [Auth].
	Header string
	// Secret is a reference, "env:NAME" or "file:path"; "" with Literal.
	Secret string
	// Literal is a credential as old clients send it. The registry seals it
	// before it is stored and nothing ever gives it back. Type AuthBearer or
	// AuthAPIKey with neither Secret nor Literal keeps the stored credential
	// of the same type, if there is one, and else sends none.
	Literal Secret
	// In, User and OAuth2 are as in [Auth].
	In     AuthPlace
	User   string
	OAuth2 *OAuth2
	// Headers are the credentials of AuthHeaders by the names of their headers.
	Headers map[string]SecretSpec
}

// SecretSpec is one secret that a caller gives: a reference, or the secret
// itself. Neither keeps the stored one, where there is one, as the reference
// "[redacted]" does.
type SecretSpec struct {
	Secret  string
	Literal Secret
}

// IsZero reports whether nothing was given.
func (s SecretSpec) IsZero() bool { return s.Secret == "" && s.Literal.IsZero() }

// TLSSpec is [AgentTLS] as a caller gives it. The zero value is no TLS settings.
type TLSSpec struct{ Cert, Key, CA SecretSpec }
