package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

const envPrefix = "PARLEY_"

// envName gives the variable of a path.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

func environment(entries []string) map[string]string {
	env := make(map[string]string, len(entries))
	for _, e := range entries {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	return env
}

// others are variables with our prefix that are no settings: those of the
// command line, and of tests.
func others(name string) bool {
	return slices.Contains([]string{"PARLEY_URL", "PARLEY_KEY", "PARLEY_CONFIG"}, name) || strings.HasPrefix(name, "PARLEY_TEST_")
}

// readEnv takes the values of variables.
func (l *loader) readEnv() {
	vars := l.variables()
	prefix := l.secretPrefix()
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !strings.HasPrefix(name, envPrefix) || others(name) || strings.HasPrefix(name, prefix) || l.env[name] == "" {
			continue
		}
		path, ok := vars[name]
		if !ok {
			l.strangers = append(l.strangers, name)
			continue
		}
		if v, err := l.known[path].parse(l.env[name]); err != nil {
			l.problem(parley.Problem{File: name}, path, codeValue, err.Error())
		} else {
			l.set(path, v, Origin{Name: name, dir: l.src.Dir, rank: rankEnv})
		}
	}
	l.readOld()
}

// secretPrefix begins the variables that hold secrets of agents.
func (l *loader) secretPrefix() string {
	if v := l.env[envName("secrets.env_prefix")]; v != "" {
		return v
	}
	if v, _ := l.values["secrets.env_prefix"].(string); v != "" {
		return v
	}
	return "PARLEY_SECRET_"
}

// variables gives the paths of settings by the names of their variables.
func (l *loader) variables() map[string]string {
	vars := make(map[string]string, len(l.known))
	for path := range l.known {
		vars[envName(path)] = path
	}
	return vars
}

// judgeStrangers looks at the variables with our prefix that are no settings, when all
// references are known: one that a setting refers to may have any name, such as
// PARLEY_AUTH_KEY.
func (l *loader) judgeStrangers() {
	vars := l.variables()
	for _, name := range l.strangers {
		if l.referenced("env:" + name) {
			continue
		}
		if !l.refuseMisspelt(name, vars) {
			l.notes = append(l.notes, name+" names no setting and was not read")
		}
	}
}

// refuseMisspelt refuses what was surely meant to be a setting. Others may have put
// names with our prefix into the environment, as container platforms do for a service
// that is called so.
func (l *loader) refuseMisspelt(name string, vars map[string]string) bool {
	flat := strings.ReplaceAll(name, "__", "_")
	for other := range vars {
		if strings.ReplaceAll(other, "__", "_") == flat {
			l.problem(parley.Problem{File: name}, "", codeUnknown, "there is no such setting (did you mean "+other+"?)")
			return true
		}
	}
	if strings.Contains(name, "__") {
		l.problem(parley.Problem{File: name}, "", codeUnknown, "there is no such setting"+l.meant(name, slices.Sorted(maps.Keys(vars))))
		return true
	}
	return false
}

// referenced reports whether a value refers to the variable.
func (l *loader) referenced(ref string) bool {
	for path, v := range l.values {
		if s := l.known[path]; (s.Kind == KindSecret || s.Kind == KindURL) && v == ref {
			return true
		}
	}
	return false
}

// readOld takes what the existing platform's variables say, where nobody else
// says it (formats.md, "Environment names seen").
func (l *loader) readOld() {
	for _, path := range l.paths() {
		for _, name := range l.known[path].Old {
			text := l.env[name]
			if text == "" {
				continue
			}
			if l.known[path].Kind == KindSecret && !isReference(text) {
				text = "env:" + name // it holds the secret itself
			}
			if l.values[path] == text && l.origin[path].rank > rankOld {
				continue // what was set refers to it
			}
			v, err := l.known[path].parse(modern(path, text))
			if err != nil {
				l.problem(parley.Problem{File: name}, path, codeValue, err.Error())
				continue
			}
			if l.origin[path].rank > rankOld {
				l.notes = append(l.notes, fmt.Sprintf("%s, a name of the existing platform, was not read: %s is set by %s", name, path, l.origin[path].Name))
				continue
			}
			l.set(path, v, Origin{Name: name, dir: l.src.Dir, rank: rankOld})
			l.notes = append(l.notes, fmt.Sprintf("%s, a name of the existing platform, was read as %s; its own name is %s", name, path, envName(path)))
		}
	}
	l.oldAddress()
	for _, name := range []string{"MAX_RETRIES", "REDIS_URL"} {
		if l.env[name] != "" {
			l.notes = append(l.notes, name+", a name of the existing platform, says nothing here and was not read")
		}
	}
}

// oldAddress is what the two variables of the old API make of listen.
func (l *loader) oldAddress() {
	host, port := l.env["API_HOST"], l.env["API_PORT"]
	if host == "" && port == "" || l.origin["listen"].rank > rankOld {
		return
	}
	was, wasPort, _ := net.SplitHostPort(l.known["listen"].Default.(string))
	if host == "" {
		host = was
	}
	if port == "" {
		port = wasPort
	}
	l.set("listen", net.JoinHostPort(host, port), Origin{Name: "API_HOST and API_PORT", rank: rankOld})
	l.notes = append(l.notes, "API_HOST and API_PORT, names of the existing platform, were read as listen; its own name is "+envName("listen"))
}

// modern turns a value of the existing platform into ours: its URLs name a
// driver, its levels are in capitals, its times are seconds.
func modern(path, text string) string {
	switch path {
	case "database.url":
		if scheme, rest, ok := strings.Cut(text, "://"); ok {
			scheme, _, _ = strings.Cut(scheme, "+")
			return scheme + "://" + rest
		}
	case "log.level":
		if strings.EqualFold(text, "warning") {
			return "warn"
		}
		if strings.EqualFold(text, "critical") {
			return "error"
		}
		return strings.ToLower(text)
	case "log.format":
		if strings.EqualFold(text, "json") {
			return "json"
		}
		return "text"
	case "limits.agent_timeout", "bridge.breaker.timeout", "bridge.breaker.window":
		return text + "s"
	}
	return text
}
