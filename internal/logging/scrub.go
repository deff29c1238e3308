package logging

// scrub gives s without credentials: known values, and what has the form of
// one. It stops when the result has limit bytes. Without any credential the
// result is nil.
func scrub[S ~string | ~[]byte](t *table, s S, limit int) (out []byte, changed bool) {
	start := 0 // of what was not copied yet
	for i := 0; i < len(s) && len(out)+i-start < limit; {
		what := t.first[s[i]]
		if what == 0 {
			i++
			continue
		}
		from, to := i, i
		if what&isHead != 0 {
			to += knownAt(t, s, i)
		}
		if to == i && what&isSign != 0 {
			from, to = formAt(s, i)
		}
		if to <= from {
			i++
			continue
		}
		// Another secret may begin inside and reach further.
		for j := from; j < to; j++ {
			to = max(to, j+knownAt(t, s, j))
		}
		out = append(append(out, s[start:from]...), redacted...)
		start, i, changed = to, to, true
	}
	if !changed {
		return nil, false
	}
	out = append(out, s[start:min(len(s), max(start, start+limit-len(out)))]...)
	return out[:min(len(out), limit)], true
}

// signs are the bytes that formAt looks at.
const signs = " =:"

// formAt gives the part of s that has the form of a credential, seen from a
// sign at i: the blank of "Bearer …", the colon of "https://user:…@", of
// `"token": "…"` or of "Token:…" as package fmt prints structs, the equals sign
// of "?api_key=…" or "password='…'".
func formAt[S ~string | ~[]byte](s S, i int) (from, to int) {
	switch s[i] {
	case ' ':
		if hasWord(s, i, "bearer") || hasWord(s, i, "basic") {
			return schemeValue(s, i+1)
		}
	case '=':
		return assigned(s, i)
	case ':':
		switch {
		case i+2 < len(s) && s[i+1] == '/' && s[i+2] == '/':
			return urlPassword(s, i+3)
		case i > 0 && s[i-1] == '"':
			return memberValue(s, i)
		case i+1 < len(s) && s[i+1] != ' ':
			return assigned(s, i)
		}
	}
	return 0, 0
}

// hasWord reports whether word, in lower case, ends right before i.
func hasWord[S ~string | ~[]byte](s S, i int, word string) bool {
	if i < len(word) {
		return false
	}
	for j := range len(word) {
		if s[i-len(word)+j]|0x20 != word[j] {
			return false
		}
	}
	return true
}

// schemeValue takes what follows an authentication scheme, unless it is a word
// of a sentence.
func schemeValue[S ~string | ~[]byte](s S, from int) (int, int) {
	to, digit := from, false
	for to < len(s) && isTokenByte(s[to]) {
		digit = digit || '0' <= s[to] && s[to] <= '9'
		to++
	}
	if n := to - from; n < 8 || n < 20 && !digit {
		return 0, 0
	}
	return from, to
}

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '-', '.', '_', '~', '+', '/', '=':
		return true
	}
	return false
}

// urlPassword takes the password of "user:password@" at from, up to the last @ before
// the path.
func urlPassword[S ~string | ~[]byte](s S, from int) (int, int) {
	colon, at := -1, -1
	for i := from; i < len(s) && !endsAuthority(s[i]); i++ {
		switch {
		case s[i] == ':' && colon < 0:
			colon = i
		case s[i] == '@' && colon < 0:
			return 0, 0
		case s[i] == '@':
			at = i
		}
	}
	if at < 0 {
		return 0, 0
	}
	return colon + 1, at
}

func endsAuthority(c byte) bool {
	switch c {
	case '/', '?', '#', ' ', '"', '\\', '\n':
		return true
	}
	return false
}

// maxWord bounds the name of a value, in bytes.
const maxWord = 64

// assigned takes the value behind the sign at i if the bare name before it names
// a credential.
func assigned[S ~string | ~[]byte](s S, i int) (int, int) {
	first := i
	for first > 0 && i-first < maxWord && s[first-1] != '=' && isTokenByte(s[first-1]) {
		first--
	}
	if !SensitiveKey(s[first:i]) {
		return 0, 0
	}
	from := i + 1
	if from < len(s) && s[from] == '[' {
		from++
	}
	// A bare quote may end the string that all this stands in.
	quoted := false
	if n, quote := backslashes(s, from); quote && n > 0 {
		from, quoted = from+n+1, true
	} else if from < len(s) && s[from] == '\'' {
		from, quoted = from+1, true
	}
	to := from
	for to < len(s) && s[to] != '\n' && (s[to] == ' ' && quoted || !isValueEnd(s[to])) {
		to++
	}
	switch string(s[from:to]) {
	case redacted, redacted[1 : len(redacted)-1], "true", "false", "null", "<nil>":
		return 0, 0
	}
	return from, to
}

func isValueEnd(c byte) bool {
	switch c {
	case '&', '#', ' ', '"', '\'', '\\', '<', '>', ']', '}':
		return true
	}
	return false
}

// memberValue takes the string after the colon at i if the quoted name before it
// names a credential. Both are quoted alike, if need be with backslashes: the
// JSON may stand in a string.
func memberValue[S ~string | ~[]byte](s S, i int) (int, int) {
	name := i - 1 // the quote that ends it
	for name > 0 && s[name-1] == '\\' {
		name--
	}
	slashes := i - 1 - name
	first := name
	for first > 0 && name-first < maxWord && s[first-1] != '"' {
		first--
	}
	if !SensitiveKey(s[first:name]) {
		return 0, 0
	}
	from := i + 1
	for from < len(s) && s[from] == ' ' {
		from++
	}
	if n, quote := backslashes(s, from); !quote || n != slashes {
		return 0, 0
	}
	from += slashes + 1
	to := valueEnd(s, from, slashes)
	if string(s[from:to]) == redacted {
		return 0, 0
	}
	return from, to
}

// valueEnd finds where the string that begins at from ends, if its quotes have
// so many backslashes. One more level of escaping doubles each of them and adds
// one for a quote.
func valueEnd[S ~string | ~[]byte](s S, from, slashes int) int {
	for to := from; to < len(s); to++ {
		n, quote := backslashes(s, to)
		switch {
		case !quote:
		case n < slashes: // the end of the string around
			return to
		case (n-slashes)%(2*(slashes+1)) == 0:
			return to + n - slashes
		}
		to += n
	}
	return len(s)
}

// backslashes counts those at i, and reports whether a quote follows them.
func backslashes[S ~string | ~[]byte](s S, i int) (n int, quote bool) {
	for i+n < len(s) && s[i+n] == '\\' {
		n++
	}
	return n, i+n < len(s) && s[i+n] == '"'
}
