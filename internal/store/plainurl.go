package store

import (
	"net/url"
	"strings"
)

// PlainURL takes what is of the driver of the existing platform out of the URL of a
// PostgreSQL database: its name in the scheme, postgresql+asyncpg://, and its
// parameters, of which ssl becomes sslmode. The scheme is in lower case, as the driver
// wants it. Any other text stays as it is.
func PlainURL(address string) string {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(address), "://")
	if !ok {
		return address
	}
	if base, _, ok := strings.Cut(scheme, "+"); ok {
		scheme = base
	}
	scheme = strings.ToLower(scheme)
	where, query, _ := strings.Cut(rest, "?")
	// A plus is a plus there, and a blank is %20.
	params, err := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B"))
	if err != nil || !plainParams(params) {
		return scheme + "://" + rest
	}
	return scheme + "://" + where + "?" + strings.ReplaceAll(params.Encode(), "+", "%20")
}

// plainParams turns the parameters of asyncpg into those of libpq and reports
// whether there were any: ssl is its sslmode, and the others say how it works.
func plainParams(params url.Values) (changed bool) {
	if params.Has("ssl") && !params.Has("sslmode") {
		params.Set("sslmode", params.Get("ssl"))
	}
	for _, name := range []string{
		"ssl", "timeout", "command_timeout", "statement_cache_size", "max_cached_statement_lifetime", "max_cacheable_statement_size",
		"prepared_statement_cache_size", "prepared_statement_name_func", "async_fallback",
	} {
		changed = changed || params.Has(name)
		params.Del(name)
	}
	return changed
}
