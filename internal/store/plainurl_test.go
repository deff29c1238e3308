package store

import (
	"strings"
	"testing"
)

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
		"PostgreSQL://U:P@h:1/D":                                          "postgresql://U:P@h:1/D",
		"parley.db":                                                       "parley.db",
	} {
		if got := PlainURL(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

// TestURLInUpperCase: the scheme of a URL may be in upper case. Taken for the path of a
// file, it would be shown with its password.
func TestURLInUpperCase(t *testing.T) {
	for _, scheme := range []string{"POSTGRES", "PostgreSQL"} {
		_, err := Open(t.Context(), scheme+"://ann:secret-of-the-database@127.0.0.1:1/d", Options{})
		if err == nil || strings.Contains(err.Error(), "secret-of-the-database") || !strings.Contains(err.Error(), "d on 127.0.0.1:1 as ann") {
			t.Errorf("error %v", err)
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
