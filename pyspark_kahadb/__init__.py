"""The name under which Spark finds this source by itself: spark.read.format("kahadb")."""
