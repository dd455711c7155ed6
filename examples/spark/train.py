"""Logistic regression with Spark's MLlib on scikit-learn's handwritten digits.

No cluster code: `getOrCreate()` finds it in the environment.
"""

from __future__ import annotations

import argparse
import os

from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

TRAINING = 1440
PARTS = 12


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    spark = SparkSession.builder.appName("digits").getOrCreate()
    x, y = load_digits(return_X_y=True)
    rows = [(float(b), Vectors.dense((a / 16.0).tolist())) for a, b in zip(x, y, strict=True)]
    parts = spark.sparkContext.parallelize(rows[:TRAINING], PARTS)
    where = parts.mapPartitions(lambda _: [os.environ["SPARK_LOCAL_IP"]]).distinct().count()
    print(f"{PARTS} parts on {where} nodes")

    columns = ["label", "features"]
    training = spark.createDataFrame(parts, columns).cache()
    model = LogisticRegression(maxIter=options.steps, regParam=0.001).fit(training)
    for step, loss in enumerate(model.summary.objectiveHistory):
        if step % 5 == 0:
            print(f"step {step}: loss {loss:.6f}")
    found = model.transform(spark.createDataFrame(rows[TRAINING:], columns))
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(found)
    print(f"test accuracy {accuracy:.3f}")
    spark.stop()


if __name__ == "__main__":
    main()
