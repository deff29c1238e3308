package config

import "github.com/parley-project/parley"

// What values.store may be.
const (
	ValuesFiles = "files"
	ValuesS3    = "s3"
)

// Values says where values of runs are kept that are too large for the database.
type Values struct {
	// ApartAbove is how many bytes a value may have that stays in the database; 0
	// keeps all there.
	ApartAbove int64 `koanf:"apart_above"`
	// Store is files or s3.
	Store string `koanf:"store"`
	// Dir is the folder of files, "" for one in the data folder.
	Dir string         `koanf:"dir"`
	S3  ValuesS3Bucket `koanf:"s3"`
}

// ValuesS3Bucket is the bucket of store s3.
type ValuesS3Bucket struct {
	Endpoint  string `koanf:"endpoint"`
	Region    string `koanf:"region"`
	Bucket    string `koanf:"bucket"`
	Prefix    string `koanf:"prefix"`
	PathStyle bool   `koanf:"path_style"`
	// AccessKey and SecretKey are empty where the SDK's own chain finds them.
	AccessKey string        `koanf:"access_key"`
	SecretKey parley.Secret `koanf:"-"`
	// Encryption is what the server is asked to encrypt with, "" for its default.
	Encryption string `koanf:"encryption"`
	KMSKey     string `koanf:"kms_key"`
}

// checkValues refuses settings of a store of values that lack what goes with them. A
// bridge without a database keeps none.
func (l *loader) checkValues() {
	if l.values["bridge.ledger"] == LedgerNone {
		return
	}
	is := func(path string) bool { v, ok := l.values[path].(string); return ok && v != "" }
	refuse := func(path, text string) { l.problem(l.whence(path), path, codeValue, text) }
	switch {
	case l.values["values.store"] == ValuesS3:
		for _, path := range []string{"values.s3.bucket", "values.s3.region"} {
			if !is(path) {
				refuse("values.store", "s3 needs "+path)
			}
		}
		const id, secret = "values.s3.access_key", "values.s3.secret_key"
		if is(id) && !is(secret) {
			refuse(id, "goes with "+secret+", which is not given")
		}
		if is(secret) && !is(id) {
			refuse(secret, "goes with "+id+", which is not given")
		}
	case is("database.url") && !is("values.dir") && l.values["values.apart_above"] != int64(0):
		refuse("values.apart_above", "keeps values in files, which all processes that share the database need: set values.dir to a folder that all of them see, or values.store: s3")
	}
}

// valuesSettings are the values that are kept apart.
func valuesSettings() []Setting {
	text := func(path, def, help string) Setting {
		return Setting{Path: "values.s3." + path, Kind: KindText, Default: def, Help: help}
	}
	encryption := text("encryption", "", "what the server encrypts objects with; empty: its default")
	encryption.Choices = []string{"AES256", "aws:kms"}
	return []Setting{
		{
			Path: "values.apart_above", Kind: KindSize, Default: int64(0), least: 0, most: 64 << 20,
			Help: "inputs and outputs above this size are kept apart from the database, as files or in a bucket; 0B: none are",
		},
		{
			Path: "values.store", Kind: KindText, Default: ValuesFiles, Choices: []string{ValuesFiles, ValuesS3},
			Help: "where they are kept: in a folder, or in a bucket of Amazon S3 or of a server that speaks its protocol",
		},
		{Path: "values.dir", Kind: KindFolder, Default: "", Help: "folder of store files, the same for all processes; empty: values in the data folder"},
		text("endpoint", "", "URL of the server; empty: that of Amazon for the region"),
		text("region", "us-east-1", "region of the bucket; servers other than Amazon's mostly take any"),
		text("bucket", "", "name of the bucket"),
		text("prefix", "", "what the keys of all objects begin with, such as parley/"),
		{Path: "values.s3.path_style", Kind: KindSwitch, Default: false, Help: "name the bucket in the path instead of the host, as most servers other than Amazon's want it"},
		text("access_key", "", "access key id; empty: what the AWS SDK finds (variables, files, the machine's role)"),
		{Path: "values.s3.secret_key", Kind: KindSecret, Default: "", Help: "secret access key of values.s3.access_key"},
		encryption,
		text("kms_key", "", "key of aws:kms; empty: the default one"),
	}
}
