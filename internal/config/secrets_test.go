package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
)

// TestSecretsAreRead: what any secret of the settings refers to reaches the
// configuration.
func TestSecretsAreRead(t *testing.T) {
	for _, s := range config.Settings() {
		if s.Kind != config.KindSecret {
			continue
		}
		name := "PARLEY_" + strings.ToUpper(strings.ReplaceAll(s.Path, ".", "__"))
		l, err := load("database: {url: postgres://h/d}", []string{name + "=env:THE_SECRET", "THE_SECRET=postgres://h/s3cr3t"}, nil)
		if err != nil {
			t.Errorf("%s: %v", s.Path, err)
		} else if !holds(reflect.ValueOf(l).Elem(), "s3cr3t") {
			t.Errorf("%s is not read", s.Path)
		}
	}
}

// TestSecretsOfWindows: the byte order mark and the line end that editors there write
// are no part of a secret; blanks are.
func TestSecretsOfWindows(t *testing.T) {
	l, err := config.Load(config.Sources{
		File: "parley.yaml", Data: []byte("auth: {key: file:key}"), FileDir: "/etc", Dir: "/",
		ReadFile: func(string) ([]byte, error) { return []byte("\ufeff s3cr3t \r\n"), nil },
	})
	if err != nil || string(l.Auth.Key.Reveal()) != " s3cr3t " {
		t.Errorf("%q, %v", l.Auth.Key.Reveal(), err)
	}
}

// holds says whether a secret in v, or that a function in v gives, has the word in it.
func holds(v reflect.Value, word string) bool {
	switch v.Kind() {
	case reflect.Func:
		if give, ok := reflect.TypeAssert[func() (parley.Secret, error)](v); ok && give != nil {
			secret, err := give()
			return err == nil && strings.Contains(string(secret.Reveal()), word)
		}
	case reflect.Struct:
		if secret, ok := reflect.TypeAssert[parley.Secret](v); ok {
			return strings.Contains(string(secret.Reveal()), word)
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && holds(v.Field(i), word) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if holds(v.Index(i), word) {
				return true
			}
		}
	default:
	}
	return false
}
