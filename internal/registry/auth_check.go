package registry

import (
	"bytes"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
)

// The limits of an authentication.
const (
	maxCredential = 16 << 10 // bytes of a credential that a header carries
	maxHeaders    = 16       // of AuthHeaders
	maxUser       = 255      // bytes
	maxClientID   = 1024     // bytes
	maxScopes     = 64
	maxScope      = 256 // bytes
)

// carrier is how a secret travels, which decides what it may hold.
type carrier int

const (
	asHeader carrier = iota // one line of printable ASCII
	asText                  // one line, encoded on its way
	asCookie                // RFC 6265 §4.1.1
	asPEM
)

// carrierOf says how the credential of an authentication travels.
func carrierOf(kind parley.AuthType, in parley.AuthPlace) carrier {
	switch {
	case kind == parley.AuthBasic, kind == parley.AuthOAuth2, in == parley.InQuery:
		return asText
	case in == parley.InCookie:
		return asCookie
	}
	return asHeader
}

// fits reports whether value can travel as it is.
func (c carrier) fits(value []byte) bool {
	switch c {
	case asPEM:
		return bytes.Contains(value, []byte("-----BEGIN ")) && len(value) <= maxSecret
	case asText:
		return len(value) > 0 && len(value) <= maxCredential && utf8.Valid(value) &&
			!bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
	case asCookie:
		return isCredential(value) && !bytes.ContainsAny(value, " \",;\\")
	}
	return isCredential(value)
}

// want says what fits.
func (c carrier) want() string {
	switch c {
	case asPEM:
		return "PEM text (-----BEGIN …) of at most 64 KiB"
	case asText:
		return "one line of text of at most 16384 bytes"
	case asCookie:
		return "one line of printable ASCII that fits into a cookie, without blanks, quotes, commas and semicolons"
	}
	return "one line of printable ASCII of at most 16384 bytes"
}

// checkAuth reports what is wrong with a caller's authentication, without
// looking whether a reference leads anywhere yet. Without secrets only the form
// of a reference is checked.
func checkAuth(auth wantedAuth, secrets *Secrets, f *faults) {
	if !slices.Contains(parley.AuthTypes(), auth.Type) {
		f.add("auth.type", faultValue, "must be one of %s", authTypeList())
		return
	}
	checkNames(auth, f)
	if credentialNames(auth.Type) == nil {
		if !auth.secret.missing() {
			f.add("auth", faultValue, "must not hold a credential for type %s", auth.Type)
		}
	} else {
		needed := auth.Type != parley.AuthBearer && auth.Type != parley.AuthAPIKey
		if needed && auth.secret.missing() {
			f.add("auth.secret", faultRequired, "must be given for type %s", auth.Type)
		}
		checkSecret(auth.secret, secret{"auth.secret", carrierOf(auth.Type, auth.In)}, secrets, f)
	}
	if auth.Type == parley.AuthHeaders {
		checkHeaders(auth, secrets, f)
	} else if len(auth.headers) > 0 {
		f.add("auth.headers", faultValue, "is for type headers only")
	}
	switch {
	case auth.Type == parley.AuthOAuth2:
		checkOAuth2(auth.OAuth2, f)
	case auth.OAuth2 != nil:
		f.add("auth.token_url", faultValue, "and what belongs to it is for type oauth2 only")
	}
}

// checkNames checks what says where a credential goes.
func checkNames(auth wantedAuth, f *faults) {
	hasHeader := auth.Type == parley.AuthAPIKey || auth.Type == parley.AuthHeader
	inHeader := auth.In == "" || auth.In == parley.InHeader
	switch {
	case auth.Header == "" && auth.Type == parley.AuthHeader:
		f.add("auth.header", faultRequired, "must name the header for type header")
	case auth.Header == "" && hasHeader && !inHeader:
		f.add("auth.header", faultRequired, "must name the %s that carries the key", shown(string(auth.In)))
	case auth.Header == "":
	case !hasHeader:
		f.add("auth.header", faultValue, "is for types apikey and header only")
	case inHeader && !isHeaderName(auth.Header):
		f.add("auth.header", faultValue, "must be the name of a header that the protocol does not use itself")
	case !inHeader && (len(auth.Header) > maxHeaderName || !isToken(auth.Header) && auth.In == parley.InCookie || !asText.fits([]byte(auth.Header))):
		f.add("auth.header", faultValue, "must be the name of a query parameter or a cookie, of at most %d bytes", maxHeaderName)
	}
	switch auth.In {
	case "", parley.InHeader:
	case parley.InQuery, parley.InCookie:
		if auth.Type != parley.AuthAPIKey {
			f.add("auth.in", faultValue, "is for type apikey only")
		}
	default:
		f.add("auth.in", faultValue, "must be one of header, query, cookie")
	}
	switch {
	case auth.Type == parley.AuthBasic && auth.User == "":
		f.add("auth.user", faultRequired, "must be given for type basic")
	case auth.User != "" && auth.Type != parley.AuthBasic:
		f.add("auth.user", faultValue, "is for type basic only")
	case auth.User != "" && (strings.Contains(auth.User, ":") || len(auth.User) > maxUser || !asText.fits([]byte(auth.User))):
		f.add("auth.user", faultValue, "must be text of at most %d bytes without a colon", maxUser)
	}
}

// secret is a secret's place in a record and on the wire.
type secret struct {
	path string
	as   carrier
}

// checkSecret reports what is wrong with one secret, as far as it is given.
func checkSecret(w wantedSecret, at secret, secrets *Secrets, f *faults) {
	switch {
	case w.keep != "":
	case w.Secret != "" && !w.Literal.IsZero():
		f.add(at.path, faultValue, "must be a reference or a credential, not both")
	case isSealed(w.SecretSpec):
		f.add(at.path, faultValue, "stands for a stored credential, and there is none of this type; give the credential")
	case w.Secret != "":
		if err := secrets.Check(w.Secret); err != nil {
			f.add(at.path, faultReference, "%s", messageOf(err))
		}
	case !w.Literal.IsZero() && !at.as.fits(w.Literal.Reveal()):
		f.add(at.path, faultValue, "must be %s", at.as.want())
	}
}

func checkHeaders(auth wantedAuth, secrets *Secrets, f *faults) {
	if n := len(auth.headers); n == 0 || n > maxHeaders {
		f.add("auth.headers", faultRequired, "must be 1 to %d headers, each with its credential", maxHeaders)
		return
	}
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(auth.headers)) {
		path := "auth.headers." + shown(name)
		before := seen[strings.ToLower(name)]
		switch {
		case !isHeaderName(name):
			f.add(path, faultValue, "must be the name of a header that the protocol does not use itself")
		case before != "":
			f.add(path, faultDuplicate, "is the same header as %s", before)
		case auth.headers[name].missing():
			f.add(path, faultRequired, "must be a credential or a reference to it")
		}
		seen[strings.ToLower(name)] = name
		checkSecret(auth.headers[name], secret{path, asHeader}, secrets, f)
	}
}

func checkOAuth2(o *parley.OAuth2, f *faults) {
	if o == nil {
		o = &parley.OAuth2{}
	}
	u, err := url.Parse(o.TokenURL)
	switch {
	case o.TokenURL == "":
		f.add("auth.token_url", faultRequired, "must be given for type oauth2")
	case len(o.TokenURL) > maxURL || err != nil || u.Scheme != "https" && u.Scheme != "http" || !validHost(u) || u.Fragment != "":
		f.add("auth.token_url", faultValue, "must be a URL such as https://login.example/oauth2/token, of at most %d bytes", maxURL)
	case u.User != nil:
		f.add("auth.token_url", faultValue, "must not hold a user name or password; use client_id and secret")
	}
	switch {
	case o.ClientID == "":
		f.add("auth.client_id", faultRequired, "must be given for type oauth2")
	case len(o.ClientID) > maxClientID || !asText.fits([]byte(o.ClientID)):
		f.add("auth.client_id", faultValue, "must be one line of text of at most %d bytes", maxClientID)
	}
	if len(o.Scopes) > maxScopes || slices.ContainsFunc(o.Scopes, func(s string) bool {
		return len(s) > maxScope || !isCredential([]byte(s)) || strings.ContainsAny(s, ` "\`) // RFC 6749 §3.3
	}) {
		f.add("auth.scopes", faultValue, "must be at most %d scopes of 1 to %d printable ASCII characters without blanks", maxScopes, maxScope)
	}
	if o.Audience != "" && (len(o.Audience) > maxURL || !asText.fits([]byte(o.Audience))) {
		f.add("auth.audience", faultValue, "must be one line of text of at most %d bytes", maxURL)
	}
	if o.Style != "" && o.Style != parley.OAuth2InHeader && o.Style != parley.OAuth2InBody {
		f.add("auth.auth_style", faultValue, "must be one of header, body")
	}
}

// checkTLS reports what is wrong with a caller's TLS settings.
func checkTLS(w wantedTLS, secrets *Secrets, f *faults) {
	for _, m := range []struct {
		name string
		wantedSecret
	}{{"tls.cert", w.cert}, {"tls.key", w.key}, {"tls.ca", w.ca}} {
		checkSecret(m.wantedSecret, secret{m.name, asPEM}, secrets, f)
	}
	switch {
	case w.cert.missing() && !w.key.missing():
		f.add("tls.cert", faultRequired, "must be given with tls.key")
	case w.key.missing() && !w.cert.missing():
		f.add("tls.key", faultRequired, "must be given with tls.cert")
	}
}

// identity is what a record will show to its agent.
type identity struct {
	auth            parley.AuthType
	hasTLS, hasCert bool
}

// checkTogether reports what does not fit together in a record: an identity
// that no connection to url would show.
func checkTogether(url string, id identity, f *faults) {
	secure := strings.HasPrefix(url, "https:") || strings.HasPrefix(url, "wss:")
	switch {
	case id.auth == parley.AuthMTLS && !id.hasCert:
		f.add("tls.cert", faultRequired, "must be given, with tls.key, for auth type mtls")
	case id.hasTLS && !secure && url != "":
		f.add("tls", faultValue, "needs a URL that begins with https:// or wss://")
	}
}

// isHeaderName reports whether name is a header that does not frame or route
// the request.
func isHeaderName(name string) bool {
	taken := []string{
		"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "upgrade",
		"te", "trailer", "keep-alive", "expect", "accept", "accept-encoding", "x-correlation-id",
		parley.HeaderTraceparent, parley.HeaderTracestate,
	}
	return isToken(name) && len(name) <= maxHeaderName && !slices.Contains(taken, strings.ToLower(name))
}

// isToken reports whether name is a token (RFC 9110 §5.6.2).
func isToken(name string) bool {
	for _, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isCredential reports whether value can stand in a header as it is.
func isCredential(value []byte) bool {
	return len(value) > 0 && len(value) <= maxCredential &&
		!bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}
