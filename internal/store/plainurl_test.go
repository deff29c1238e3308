package store

import "testing"

// TestPlainURL: what SQLAlchemy and its driver put into a URL is told as libpq has it.
func TestPlainURL(t *testing.T) {
	for given, want := range map[string]string{
		"postgres://u:p@h:1/d":                                            "postgres://u:p@h:1/d",
		" postgresql+asyncpg://u@h/d\n":                                   "postgresql://u@h/d",
		"postgresql://u@h/d?sslmode=disable&search_path=a%2Cb":            "postgresql://u@h/d?sslmode=disable&search_path=a%2Cb",
		"postgresql+asyncpg://u@h/d?ssl=require":                          "postgresql://u@h/d?sslmode=require",
		"postgresql://u@h/d?ssl=disable&timeout=5&statement_cache_size=0": "postgresql://u@h/d?sslmode=disable",
		"postgresql://u@h/d?ssl=disable&sslmode=require":                  "postgresql://u@h/d?sslmode=require",
		"postgresql://u@h/d?ssl=disable&options=-c%20search_path%3Da":     "postgresql://u@h/d?options=-c%20search_path%3Da&sslmode=disable",
		"postgresql://u@h/d?ssl=disable&application_name=a+b%2Bc%25":      "postgresql://u@h/d?application_name=a%2Bb%2Bc%25&sslmode=disable",
		"parley.db": "parley.db",
	} {
		if got := PlainURL(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

// TestURLOfAnotherDriver: the store opens what the existing platform's API has in its
// DATABASE_URL, whose ssl no server knows.
func TestURLOfAnotherDriver(t *testing.T) {
	for given, encrypted := range map[string]bool{"disable": false, "require": true} {
		c, err := postgresConfig("postgresql://u@h/d?ssl="+given, Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.RuntimeParams["ssl"]; ok || (c.TLSConfig != nil) != encrypted {
			t.Errorf("ssl=%s: encrypted %v, asked of the server: %v", given, c.TLSConfig != nil, c.RuntimeParams)
		}
	}
}
