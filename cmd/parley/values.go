package main

import (
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/server"
)

// valuesConfig says where values are kept that are too large for the database.
func valuesConfig(v config.Values) server.ValuesConfig {
	c := server.ValuesConfig{ApartAbove: v.ApartAbove, Dir: v.Dir}
	if v.Store == config.ValuesS3 {
		b := v.S3
		c.S3 = &server.ValuesBucket{
			Endpoint: b.Endpoint, Region: b.Region, Bucket: b.Bucket, Prefix: b.Prefix, PathStyle: b.PathStyle,
			AccessKey: b.AccessKey, SecretKey: b.SecretKey, Encryption: b.Encryption, KMSKey: b.KMSKey,
		}
	}
	return c
}
