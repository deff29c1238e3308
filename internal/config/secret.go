package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/parley-project/parley"
)

const (
	refEnv  = "env:"
	refFile = "file:"
	// maxSecret bounds one secret, in bytes.
	maxSecret = 64 << 10
)

func isReference(text string) bool {
	return strings.HasPrefix(text, refEnv) || strings.HasPrefix(text, refFile)
}

// resolve turns references into what they name.
func (l *loader) resolve(c *Config) {
	c.Database.URL = l.databaseURL()
	c.Database.Current = l.currentURL()
	c.Auth.Key = l.secret("auth.key")
	l.resolveZone(&c.Zone)
	c.Telemetry.Traces.Header.Value = l.secret("telemetry.traces.header.value")
	c.Values.S3.SecretKey = l.secret("values.s3.secret_key")
	c.Bus.Kafka.SASL.Password = l.current("bus.kafka.sasl.password")
	c.Bus.Kafka.SASL.Token = l.current("bus.kafka.sasl.token")
}

// current gives what reads the secret of a setting as it is then, nil without one.
func (l *loader) current(path string) func() (parley.Secret, error) {
	ref, dir := l.values[path].(string), l.origin[path].dir
	if ref == "" {
		return nil
	}
	l.secret(path) // what is wrong now is said now
	return func() (parley.Secret, error) { return l.read(ref, dir) }
}

// secret gives the secret of a setting, zero without one.
func (l *loader) secret(path string) parley.Secret {
	ref := l.values[path].(string)
	if ref == "" {
		return parley.Secret{}
	}
	v, err := l.read(ref, l.origin[path].dir)
	if err != nil {
		l.problem(l.whence(path), path, codeSecret, err.Error())
	}
	return v
}

// read gives what a reference names; dir is what relative paths begin at.
func (l *loader) read(ref, dir string) (parley.Secret, error) {
	var value []byte
	if name, ok := strings.CutPrefix(ref, refEnv); ok {
		value = []byte(l.env[name])
		if len(value) == 0 {
			return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "the variable %s is not set", name)
		}
		return parley.NewSecret(value), nil
	}
	name := filepath.Clean(absolute(dir, strings.TrimPrefix(ref, refFile)))
	if l.src.ReadFile == nil {
		return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "the file %s cannot be read here", name)
	}
	value, err := l.src.ReadFile(name)
	if err != nil {
		return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "cannot be read: %w", err)
	}
	// Editors on Windows begin files with a byte order mark, which is no part of a secret.
	value = bytes.TrimRight(bytes.TrimPrefix(value, []byte("\ufeff")), "\r\n")
	if len(value) == 0 || len(value) > maxSecret {
		return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "the file %s is empty or larger than %d bytes", name, maxSecret)
	}
	return parley.NewSecret(value), nil
}

// databaseURL gives the URL with its password.
func (l *loader) databaseURL() parley.Secret {
	const path, other = "database.url", "database.password"
	if l.values[path] == "" {
		if l.values[other] != "" {
			l.problem(l.whence(other), other, codeValue, "is set without database.url")
		}
		return parley.Secret{}
	}
	u, own, wrong := l.readURL()
	if wrong != nil {
		l.problem(l.whence(wrong.path), wrong.path, wrong.code, wrong.Error())
		return parley.Secret{}
	}
	if own && l.origin[path].rank == rankFile && !isReference(l.values[path].(string)) {
		l.notes = append(l.notes, fmt.Sprintf("%s holds a password; better is database.password: env:NAME or file:PATH", l.origin[path].Name))
	}
	return u
}

// currentURL gives what reads the URL with its password as they are then, nil where
// neither is in a file.
func (l *loader) currentURL() func() (parley.Secret, error) {
	if !strings.HasPrefix(l.values["database.url"].(string), refFile) && !strings.HasPrefix(l.values["database.password"].(string), refFile) {
		return nil
	}
	return func() (parley.Secret, error) {
		u, _, wrong := l.readURL()
		if wrong != nil {
			text := wrong.Error()
			if e, ok := errors.AsType[*parley.Error](wrong.error); ok {
				text = e.Message
			}
			return parley.Secret{}, fmt.Errorf("%s %s", wrong.path, text)
		}
		return u, nil
	}
}

// urlError is what is wrong with a setting of the URL.
type urlError struct {
	path, code string
	error
}

// readURL reads the URL, and puts the password into it where it has none of its own. No
// text of the URL is ever part of an error.
func (l *loader) readURL() (_ parley.Secret, own bool, wrong *urlError) {
	const path, other = "database.url", "database.password"
	text := l.values[path].(string)
	if isReference(text) {
		v, err := l.read(text, l.origin[path].dir)
		if err != nil {
			return parley.Secret{}, false, &urlError{path, codeSecret, err}
		}
		text = string(v.Reveal())
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || !namesHost(u) {
		return parley.Secret{}, false, &urlError{path, codeValue, errNoURL}
	}
	if _, own = u.User.Password(); !own && l.values[other] != "" {
		password, err := l.read(l.values[other].(string), l.origin[other].dir)
		if err != nil {
			return parley.Secret{}, false, &urlError{other, codeSecret, err}
		}
		u.User = url.UserPassword(u.User.Username(), string(password.Reveal()))
		text = u.String()
	}
	return parley.NewSecret([]byte(text)), own, nil
}

var errNoURL = errors.New("must be a URL such as postgres://user@host:5432/parley, or postgres://user@/parley?host=/run/postgresql for a Unix socket, or empty for SQLite in the data folder")

// namesHost reports whether the URL of a database says where that is. As everywhere with
// PostgreSQL, the parameter host may do so: it takes a folder of Unix sockets, too.
func namesHost(u *url.URL) bool { return u.Host != "" || u.Query().Get("host") != "" }
