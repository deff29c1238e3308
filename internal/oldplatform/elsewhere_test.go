package oldplatform_test

import (
	"strings"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/oldplatform"
)

// TestImportOfAnotherEncoding: what a database keeps in another encoding arrives as
// what it says.
func TestImportOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	base, x := emptyPlatform(t), newTarget(t)
	name := base.conn.Config().Database
	base.exec(`CREATE DATABASE ` + name + `_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`)
	t.Cleanup(func() { base.exec(`DROP DATABASE ` + name + `_latin1 WITH (FORCE)`) })
	url := strings.Replace(base.url, name, name+"_latin1", 1)
	p := &platform{t: t, url: url + "&client_encoding=UTF8"}
	p.conn = p.connect()
	p.file("schema.sql")
	p.file("rows.sql")
	p.url = url
	diff(t, tables(x.take(p)), all())
	a := must(x.db.Agent(t.Context(), "Pricing & Tax"))(t)
	diff(t, a.Description, "Ünïcode")
	diff(t, strings.Contains(string(x.view(runID+"1").Input), "<tea> & é"), true)
}

// TestTablesOfTheSearchPath: the tables are those that the platform's own statements
// mean, also where another schema comes first, such as one of the user's name.
func TestTablesOfTheSearchPath(t *testing.T) {
	t.Parallel()
	p, x := newPlatform(t), newTarget(t)
	p.exec(`CREATE SCHEMA AUTHORIZATION CURRENT_USER`)
	diff(t, p.text(`SELECT current_schema() = current_user`), "true")
	diff(t, tables(x.take(p)), all())
	for _, again := range []bool{false, true} {
		diff(t, strings.Contains(must(p.migrate(oldplatform.MigrateUp))(t), "nothing to do"), again)
		diff(t, p.text(protocolIndex), "1")
	}
	p.exec(`UPDATE agents SET protocol = '` + parley.ProtocolJSONRPC + `'`)
	for _, again := range []bool{false, true} {
		diff(t, strings.Contains(must(p.migrate(oldplatform.MigrateDown))(t), "nothing to do"), again)
		diff(t, p.text(protocolIndex), "0")
	}
	reader := p.user()
	_, err := newTarget(t).try(&platform{t: t, url: p.as(reader)})
	diff(t, err != nil && strings.Contains(err.Error(), `GRANT SELECT ON "public"."agents"`), true)
}
