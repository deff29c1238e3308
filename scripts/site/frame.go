package main

import (
	"bytes"
	"fmt"
	"html/template"
)

// frame is what all pages have around them: the navigation and how they look. It
// needs no scripts and nothing from elsewhere.
type frame struct{ text *template.Template }

func newFrame() (*frame, error) {
	t, err := template.New("frame").Parse(frameText)
	return &frame{t}, err
}

// around gives the HTML file of a page.
func (f *frame) around(p *page) ([]byte, error) {
	var b bytes.Buffer
	err := f.text.Execute(&b, struct {
		Page   *page
		Groups []group
		Body   template.HTML
	}{p, p.site.groups, template.HTML(p.body)}) //nolint:gosec // made here, of documents of ours
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	return b.Bytes(), nil
}

const frameText = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Page.Title}}{{if ne .Page.Title "Parley"}} · Parley{{end}}</title>
<style>
body { margin: 0; font: 16px/1.6 system-ui, sans-serif; display: flex; flex-wrap: wrap; }
nav { flex: 1 0 14rem; max-width: 18rem; padding: 1.5rem; font-size: .9em; }
nav h2 { font-size: 1em; margin: 1rem 0 .2rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav [aria-current] { font-weight: bold; }
main { flex: 4 0 20rem; max-width: 60rem; min-width: 0; padding: 1rem 2rem; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid color-mix(in srgb, currentColor 20%, transparent); border-radius: 6px; line-height: 1.4; }
code { font: .9em ui-monospace, monospace; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: .25rem .6rem; text-align: left; vertical-align: top; }
:target { scroll-margin-top: 1rem; background: color-mix(in srgb, Highlight 25%, transparent); }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; }
details summary { cursor: pointer; margin-top: 1rem; font-weight: bold; }
</style>
</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<nav aria-label="Pages">
{{- range .Groups}}
{{if .Folded}}<details><summary>{{.Name}}</summary>{{else}}<h2>{{.Name}}</h2>{{end}}
<ul>
{{- range .Pages}}
<li><a href="{{$.Page.To .}}"{{if eq . $.Page}} aria-current="page"{{end}}>{{.Title}}</a></li>
{{- end}}
</ul>
{{- if .Folded}}</details>{{end}}
{{- end}}
</nav>
<main id="text">
{{.Body}}
</main>
</body>
</html>
`
