package parley

import (
	"slices"
	"strings"
	"time"
)

// KeyRole says what a key allows.
type KeyRole string

const (
	// KeyAdmin allows everything.
	KeyAdmin KeyRole = "admin"
	// KeyViewer allows looking at everything but keys, and changing nothing.
	KeyViewer KeyRole = "viewer"
)

// KeyState says whether a key is good.
type KeyState string

// The states of a key. Only an active one is good.
const (
	KeyActive  KeyState = "active"
	KeyExpired KeyState = "expired"
	KeyRevoked KeyState = "revoked"
)

// AccessKey is a named key to the REST interface. Its secret is shown once, to
// whoever makes it; of that only a digest is kept. The configured key (auth.key)
// is none of these.
type AccessKey struct {
	Name      string    `json:"name"`
	Role      KeyRole   `json:"role" enum:"admin,viewer"`
	State     KeyState  `json:"state" enum:"active,expired,revoked"`
	CreatedAt time.Time `json:"created_at"`
	// CreatedBy is the key with which it was made; "system" is the configured one.
	CreatedBy string `json:"created_by"`
	// ExpiresAt is nil for a key that is good until it is revoked.
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
	// LastUsedAt is exact to a minute; nil is never.
	LastUsedAt *time.Time `json:"last_used_at"`
}

// StateAt gives the state of the key at a time.
func (k *AccessKey) StateAt(now time.Time) KeyState {
	switch {
	case k.RevokedAt != nil:
		return KeyRevoked
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return KeyExpired
	}
	return KeyActive
}

// NewAccessKey is a key that was just made, with its secret, which nobody can be
// told a second time.
type NewAccessKey struct {
	AccessKey
	Key string `json:"key"`
}

// AccessKeyRequest asks for a key.
type AccessKeyRequest struct {
	Name string
	// Role is KeyAdmin if it is "".
	Role KeyRole
	// ExpiresIn is a duration such as 90d, at most 365d; "" is never.
	ExpiresIn string
	// By is who asks.
	By string
}

// maxKeyName bounds the name of a key, in bytes.
const maxKeyName = 64

// takenNames are no names of keys: it must not look as if a key had done what is
// recorded under them. "system" is the configured key; the others say what has begun
// or cancelled a run, where a workflow or an agent came from, or what has answered an
// approval.
var takenNames = []string{
	"system",
	"api", "event", "kafka", "request", "rerun", "retry", "schedule", "webhook", "workflow", "zone",
	ByConcurrency, "folder", "sample", "timeout",
}

// CheckKeyName says whether a text can be the name of a key: letters, digits and
// . _ -, a letter or digit first, at most 64, and none of the words that the server
// records what it does itself under, in any case.
func CheckKeyName(name string) error {
	ok := name != "" && len(name) <= maxKeyName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = letter || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return Errorf(CodeInvalid, `key name %.80q: a name has 1 to 64 letters, digits and . _ -, a letter or digit first`, name)
	}
	if slices.Contains(takenNames, strings.ToLower(name)) {
		return Errorf(CodeInvalid, "key name %q: what the server does itself is recorded under that name: take another one", name)
	}
	return nil
}
