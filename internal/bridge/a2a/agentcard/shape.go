package agentcard

import "slices"

// shape is what the interface definition of A2A 1.0 says about the members of a
// message, as far as the canonical form of a card needs it (A2A specification
// 1.0 §5.7, §8.4.1).
type shape struct {
	// kept are the members that stay when they have their default: required
	// ones, and those of messages or with the keyword optional.
	kept []string
	// inner are the members that are messages, or lists of them, by their names.
	inner map[string]*shape
	// values is set for a map of messages: all of its members have that shape.
	values *shape
	// plain are further members, known and dropped with their default.
	plain []string
	// any is a member's free JSON, which stays as it is.
	any bool
}

// cardShape is the message AgentCard.
func cardShape() *shape {
	free := &shape{any: true}
	requirement := &shape{inner: map[string]*shape{"schemes": {values: &shape{plain: []string{"list"}}}}}
	extension := &shape{plain: []string{"uri", "description", "required"}, inner: map[string]*shape{"params": free}}
	flow := func(kept ...string) *shape {
		return &shape{kept: kept, plain: []string{"authorizationUrl", "deviceAuthorizationUrl", "tokenUrl", "refreshUrl", "scopes", "pkceRequired"}, inner: map[string]*shape{"scopes": free}}
	}
	oauth2 := &shape{kept: []string{"flows"}, plain: []string{"description", "oauth2MetadataUrl"}, inner: map[string]*shape{"flows": {
		kept: []string{"authorizationCode", "clientCredentials", "implicit", "password", "deviceCode"},
		inner: map[string]*shape{
			"authorizationCode": flow("authorizationUrl", "tokenUrl", "scopes"), "clientCredentials": flow("tokenUrl", "scopes"),
			"implicit": flow(), "password": flow(), "deviceCode": flow("deviceAuthorizationUrl", "tokenUrl", "scopes"),
		},
	}}}
	scheme := &shape{
		kept: []string{
			"apiKeySecurityScheme", "httpAuthSecurityScheme", "oauth2SecurityScheme", "openIdConnectSecurityScheme", "mtlsSecurityScheme",
		},
		inner: map[string]*shape{
			"apiKeySecurityScheme":        {kept: []string{"location", "name"}, plain: []string{"description"}},
			"httpAuthSecurityScheme":      {kept: []string{"scheme"}, plain: []string{"description", "bearerFormat"}},
			"oauth2SecurityScheme":        oauth2,
			"openIdConnectSecurityScheme": {kept: []string{"openIdConnectUrl"}, plain: []string{"description"}},
			"mtlsSecurityScheme":          {plain: []string{"description"}},
		},
	}
	return &shape{
		kept: []string{
			"name", "description", "supportedInterfaces", "version", "documentationUrl", "capabilities", "defaultInputModes",
			"defaultOutputModes", "skills", "iconUrl", "provider",
		},
		plain: []string{"securitySchemes", "securityRequirements"},
		inner: map[string]*shape{
			"supportedInterfaces": {kept: []string{"url", "protocolBinding", "protocolVersion"}, plain: []string{"tenant"}},
			"provider":            {kept: []string{"url", "organization"}},
			"capabilities": {
				kept:  []string{"streaming", "pushNotifications", "extendedAgentCard"},
				plain: []string{"extensions"}, inner: map[string]*shape{"extensions": extension},
			},
			"securitySchemes":      {values: scheme},
			"securityRequirements": requirement,
			"skills": {
				kept:  []string{"id", "name", "description", "tags"},
				plain: []string{"examples", "inputModes", "outputModes", "securityRequirements"},
				inner: map[string]*shape{"securityRequirements": requirement},
			},
		},
	}
}

// of gives the shape of a member, nil if nothing is known about what is in it.
func (s *shape) of(name string) *shape {
	if s.values != nil {
		return s.values
	}
	return s.inner[name]
}

func (s *shape) keeps(name string) bool {
	if s.values != nil {
		return true // an entry of a map is there because somebody put it there
	}
	return slices.Contains(s.kept, name)
}

func (s *shape) knows(name string) bool {
	if s.values != nil || s.any || s.keeps(name) || s.inner[name] != nil {
		return true
	}
	return slices.Contains(s.plain, name)
}

// dropDefaults takes out members with default values that are neither required
// nor optional. Members that the definition does not know stay.
func (n *node) dropDefaults(s *shape) {
	if s == nil || s.any {
		return
	}
	if n.kind == '[' {
		for _, v := range n.inner {
			v.dropDefaults(s)
		}
		return
	}
	n.filter(func(name string, v *node) bool {
		v.dropDefaults(s.of(name))
		return s.keeps(name) || !s.knows(name) || !v.byDefault()
	})
}

// byDefault says whether n is the default of its type, or null.
func (n *node) byDefault() bool {
	if n.kind != 0 {
		return len(n.inner) == 0
	}
	switch string(n.scalar) {
	case `""`, "null", "false", "0":
		return true
	}
	return false
}

// keepKnown takes out what the definition does not know.
func (n *node) keepKnown(s *shape) {
	if s == nil || s.any {
		return
	}
	if n.kind == '{' {
		n.filter(func(name string, _ *node) bool { return s.knows(name) })
	}
	for i, v := range n.inner {
		inner := s
		if n.kind == '{' {
			inner = s.of(n.names[i])
		}
		v.keepKnown(inner)
	}
}
