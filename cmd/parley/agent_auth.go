package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/parley-project/parley"
)

// maxSecretInput bounds a credential on standard input, in bytes.
const maxSecretInput = 64 << 10

// authFlags are those of agent add and agent set that say how to authenticate.
type authFlags struct {
	kind, secret, name, in, user        string
	tokenURL, clientID, audience, style string
	scopes, headers                     []string
	cert, key, ca                       string
}

func (f *authFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.kind, "auth", "", strings.Join(authKinds(), ", "))
	fl.StringVar(&f.secret, "auth-secret", "", "credential: `REF` is env:NAME or file:PATH, where the server finds it, or @- to read it from standard input")
	fl.StringVar(&f.name, "auth-name", "", "header, query parameter or cookie that carries the credential (with apikey and header)")
	fl.StringVar(&f.in, "auth-in", "", "where an API key goes: header, query or cookie")
	fl.StringVar(&f.user, "auth-user", "", "user name (with basic)")
	fl.StringArrayVar(&f.headers, "auth-header", nil, "header and credential: `NAME=REF` (with headers); may be repeated")
	fl.StringVar(&f.tokenURL, "auth-token-url", "", "token endpoint (with oauth2)")
	fl.StringVar(&f.clientID, "auth-client-id", "", "client id (with oauth2); --auth-secret is its secret")
	fl.StringArrayVar(&f.scopes, "auth-scope", nil, "`scope` to ask for (with oauth2); may be repeated")
	fl.StringVar(&f.audience, "auth-audience", "", "audience to ask for (with oauth2)")
	fl.StringVar(&f.style, "auth-style", "", "how the client shows its secret: header or body (with oauth2)")
	fl.StringVar(&f.cert, "tls-cert", "", "client certificate as PEM text: `REF` is env:NAME or file:PATH, or empty to remove it")
	fl.StringVar(&f.key, "tls-key", "", "its key, `REF`")
	fl.StringVar(&f.ca, "tls-ca", "", "certificates that sign the agent's, `REF`, in place of the system's")
	complete(cmd, "auth", authKinds()...)
	complete(cmd, "auth-in", string(parley.InHeader), string(parley.InQuery), string(parley.InCookie))
	complete(cmd, "auth-style", parley.OAuth2InHeader, parley.OAuth2InBody)
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name { // as they were called before there was more than one kind of name
		case "secret":
			name = "auth-secret"
		case "header":
			name = "auth-name"
		}
		return pflag.NormalizedName(name)
	})
}

func authKinds() []string {
	kinds := make([]string, 0, len(parley.AuthTypes()))
	for _, t := range parley.AuthTypes() {
		kinds = append(kinds, string(t))
	}
	return kinds
}

// authRule says which flags belong to a kind of authentication.
type authRule struct{ needs, takes []string }

func authRules() map[parley.AuthType]authRule {
	secret := []string{"auth-secret"}
	return map[parley.AuthType]authRule{
		parley.AuthNone:    {},
		parley.AuthMTLS:    {},
		parley.AuthBearer:  {needs: secret},
		parley.AuthAPIKey:  {needs: secret, takes: []string{"auth-name", "auth-in"}},
		parley.AuthHeader:  {needs: []string{"auth-name", "auth-secret"}},
		parley.AuthHeaders: {needs: []string{"auth-header"}},
		parley.AuthBasic:   {needs: []string{"auth-user", "auth-secret"}},
		parley.AuthOAuth2: {
			needs: []string{"auth-token-url", "auth-client-id", "auth-secret"},
			takes: []string{"auth-scope", "auth-audience", "auth-style"},
		},
	}
}

// authSpec gives what the flags say of the authentication, nil for nothing;
// changed tells which of them were given.
func (a *app) authSpec(f *authFlags, changed func(string) bool) (*parley.AuthSpec, error) {
	var given []string
	for _, rule := range authRules() {
		for _, name := range slices.Concat(rule.needs, rule.takes) {
			if changed(name) && !slices.Contains(given, name) {
				given = append(given, name)
			}
		}
	}
	slices.Sort(given)
	if !changed("auth") {
		if len(given) > 0 {
			return nil, usagef("--%s needs --auth: the kind of authentication", given[0]).withHint("the kinds are %s", strings.Join(authKinds(), ", "))
		}
		return nil, nil
	}
	spec := &parley.AuthSpec{Type: parley.AuthType(f.kind), Header: f.name, In: parley.AuthPlace(f.in), User: f.user}
	rule, ok := authRules()[spec.Type]
	if !ok {
		return nil, usagef("--auth %s: the kinds are %s", f.kind, strings.Join(authKinds(), ", ")).withHint("%s", didYouMean(f.kind, authKinds()))
	}
	for _, name := range given {
		if !slices.Contains(rule.needs, name) && !slices.Contains(rule.takes, name) {
			return nil, usagef("--auth %s takes no --%s", f.kind, name)
		}
	}
	for _, name := range rule.needs {
		if !slices.Contains(given, name) {
			return nil, usagef("--auth %s needs --%s", f.kind, name).withHint("%s", ruleText(spec.Type, rule))
		}
	}
	if spec.Type == parley.AuthOAuth2 {
		spec.OAuth2 = &parley.OAuth2{TokenURL: f.tokenURL, ClientID: f.clientID, Scopes: f.scopes, Audience: f.audience, Style: f.style}
	}
	var err error
	if slices.Contains(rule.needs, "auth-secret") {
		spec.Secret, spec.Literal, err = a.secretFlag(f.secret)
	}
	if err == nil && spec.Type == parley.AuthHeaders {
		spec.Headers, err = headerFlags(f.headers)
	}
	return spec, err
}

// ruleText says what a kind needs.
func ruleText(kind parley.AuthType, rule authRule) string {
	return "--auth " + string(kind) + " goes with --" + strings.Join(rule.needs, " and --")
}

// secretFlag gives a reference, or a credential that is read from standard
// input.
func (a *app) secretFlag(text string) (string, parley.Secret, error) {
	if isReference(text) {
		return text, parley.Secret{}, nil
	}
	if text != "@-" {
		// What stands there may be the credential itself: it is not repeated.
		return "", parley.Secret{}, usagef("--auth-secret is env:NAME or file:PATH, where the server finds the credential, or @- for standard input")
	}
	b, err := readAll(a.stdin, "standard input", maxSecretInput)
	if err != nil {
		return "", parley.Secret{}, usagef("--auth-secret: %v", err)
	}
	b = []byte(strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"))
	if len(b) == 0 {
		return "", parley.Secret{}, usagef("--auth-secret: standard input holds nothing")
	}
	return "", parley.NewSecret(b), nil
}

// headerFlags reads the NAME=REF of --auth-header.
func headerFlags(list []string) (map[string]parley.SecretSpec, error) {
	out := make(map[string]parley.SecretSpec, len(list))
	for _, text := range list {
		name, ref, ok := strings.Cut(text, "=")
		if !ok || name == "" || !isReference(ref) {
			return nil, usagef("--auth-header: write it as NAME=env:VARIABLE or NAME=file:PATH")
		}
		if _, twice := out[name]; twice {
			return nil, usagef("--auth-header: %s is given twice", name)
		}
		out[name] = parley.SecretSpec{Secret: ref}
	}
	return out, nil
}

// tlsSpec gives what the flags say of TLS, nil for nothing. All settings are
// replaced together.
func (f *authFlags) tlsSpec(changed func(string) bool) (*parley.TLSSpec, error) {
	given := map[string]string{"tls-cert": f.cert, "tls-key": f.key, "tls-ca": f.ca}
	maps.DeleteFunc(given, func(name, _ string) bool { return !changed(name) })
	if len(given) == 0 {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if ref := given[name]; ref != "" && !isReference(ref) {
			return nil, usagef("--%s is env:NAME or file:PATH, where the server finds the PEM text", name)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("--tls-cert and --tls-key go together")
	}
	return &parley.TLSSpec{Cert: parley.SecretSpec{Secret: f.cert}, Key: parley.SecretSpec{Secret: f.key}, CA: parley.SecretSpec{Secret: f.ca}}, nil
}
