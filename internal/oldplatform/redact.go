package oldplatform

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
)

// redacted stands where a credential was.
const redacted = "[redacted]"

// credentials is the member that holds an agent's credential, also in the audit
// entries of the existing platform, which keep whole records.
const credentials = "auth_config"

// login is what a URL has before its host: a user, and mostly a password.
var login = regexp.MustCompile(`://[^/?#\s]*@`)

// redact gives a JSON value with every text and number inside a member
// auth_config replaced, but for the texts that say what kind it is and where it
// goes, and users and passwords in URLs anywhere; without any it is given back as
// it is. inside says that value is the content of such a member. What is no JSON
// gives null.
func redact(value []byte, inside bool) []byte {
	if !json.Valid(value) {
		return []byte("null")
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return []byte("null")
	}
	r := redactor{}
	v = r.value(v, inside)
	if !r.changed {
		return value
	}
	return encode(v)
}

type redactor struct{ changed bool }

func (r *redactor) value(v any, inside bool) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if _, isText := member.(string); inside && isText && isPublic(name) {
				continue
			}
			v[name] = r.value(member, inside || strings.EqualFold(name, credentials))
		}
	case []any:
		for i := range v {
			v[i] = r.value(v[i], inside)
		}
	case string:
		text := redacted
		if !inside {
			text = login.ReplaceAllLiteralString(v, "://"+redacted+"@")
		}
		r.changed = r.changed || text != v
		return text
	case json.Number:
		if inside {
			r.changed = true
			return redacted
		}
	}
	return v
}

// isPublic reports whether a member of auth_config is no credential.
func isPublic(name string) bool {
	switch name {
	case "type", "header", "header_name":
		return true
	}
	return false
}

// encode gives v as JSON, values byte for byte but for white space.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		// All that is encoded here came out of JSON, or is made of texts.
		return []byte("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// mapping is the version of how rows become records. Another one imports all of
// them anew.
const mapping = "1"

// digest stands for the content of a row.
func digest(rows ...any) string {
	h := sha256.New()
	for _, row := range rows {
		h.Write(encode(row))
		h.Write([]byte{'\n'})
	}
	return mapping + ":" + hex.EncodeToString(h.Sum(nil))
}
